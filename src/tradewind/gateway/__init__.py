"""OpenAI endpoint, capture of token ids, routing to pools."""
