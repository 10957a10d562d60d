"""Faust and aiokafka where they do otherwise than the stages need."""
