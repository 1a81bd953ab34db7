"""Strangers' tools against our pages: what they find is to be mended."""
