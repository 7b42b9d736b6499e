// Package ias is the worker of SAP Cloud Identity: it registers a service provider for the Grafana of Kyma 1, which the overlay
// kyma-1 switches on, and removes the service providers of an instance (docs/contracts/ias.md).
package ias
