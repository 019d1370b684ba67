"""What running activities say, how often, and from when on a silent worker is lost."""
