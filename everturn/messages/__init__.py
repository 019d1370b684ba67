"""Messages beside their records: as vendors' blocks, compressed, measured, half written."""
