"""OTLP requests in protobuf or JSON to spans and log events, and the responses to them."""
