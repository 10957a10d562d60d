"""What runs beside the stages of a worker or reads them: nothing counted waits for it."""
