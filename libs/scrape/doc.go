// Package scrape makes gauges of what has to be asked for: counts in a
// database, the state of a bus. A scrape neither hangs nor overloads what it
// asks: each source is read at most every few seconds, by one scrape at a time,
// within a deadline, and less often the longer it takes.
package scrape
