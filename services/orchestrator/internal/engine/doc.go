// Package engine decides what an operation does next. It is a pure function:
// Apply takes a process, the state of an operation, an event and the time, and
// returns the new state and what has to happen because of it. It does no I/O,
// reads no clock and draws no random numbers, so that every rule can be tested
// and every schedule replayed.
//
// A transition is durable when the state is; the shell around the engine writes
// it before it carries out any effect. Whatever an effect would have published
// can be derived from the state again (see Command), so that a crash between
// the two loses nothing.
package engine
