"""Weights as other tools keep them: which tensor of theirs holds which parameter of ours."""
