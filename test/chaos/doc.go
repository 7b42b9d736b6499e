// Package chaos injects faults into an installation under load, and prints the results: `make chaos`.
package chaos
