// Package service provides the common parts of all main functions: configuration from the environment, logs, a group of parts that
// run and end together, HTTP servers, health, metrics, signals and the lock of a data folder.
package service
