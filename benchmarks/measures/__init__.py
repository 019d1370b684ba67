"""What is measured. One file each, with `async def measure(rig, contestants, ...)`, which returns a `Measured`."""
