// Package servicemanager is the worker that gives the Service Manager proxy of Kyma 1 its credentials (facts/keb.md 4.6, 5.10). It
// calls nobody, and its step is switched on by the overlay kyma-1.
package servicemanager
