"""The words of the system as data: messages, usage, events, results, exit reasons, errors.

Standard library only. Nothing here waits, prints, reads a clock or rolls dice.
"""
