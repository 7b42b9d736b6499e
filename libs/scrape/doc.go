// Package scrape provides gauges whose values must be queried, such as counts in a
// database or the state of a bus. A scrape neither hangs nor overloads the source:
// each source is read at most every few seconds, by one scrape at a time, with a
// timeout, and less often the longer a reading takes. Register registers collectors
// that several users share.
package scrape
