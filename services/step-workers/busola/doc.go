// Package busola is the worker of Busola, the dashboard: it configures the dashboard of a runtime (facts/keb.md 4.1).
package busola
