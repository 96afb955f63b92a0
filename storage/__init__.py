"""What is durable, and what may become durable: the floor every other package stands on."""
