// Package servicemanager is the worker that gives the Service Manager proxy of Kyma 1 its credentials
// (docs/contracts/btp.md#service-manager-of-kyma-1). It calls nobody, and its step is switched on by the overlay kyma-1.
package servicemanager
