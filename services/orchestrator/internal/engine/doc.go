// Package engine decides what an operation does next. It is a pure function:
// Apply takes a process, the state of an operation, an event and the time, and
// returns the new state and its effects. It does no I/O, reads no clock and
// draws no random numbers, so every rule can be tested and every schedule can
// be replayed.
//
// The dispatcher writes the new state before it carries out any effect. A crash
// between the two loses nothing: commands and facts can be derived from the
// state and the history again (see Command and Facts).
package engine
