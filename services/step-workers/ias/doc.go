// Package ias is the worker of SAP Cloud Identity: it removes the service providers that older versions registered for an
// instance (facts/keb.md 4.2, 5.3).
package ias
