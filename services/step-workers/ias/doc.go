// Package ias is the worker of SAP Cloud Identity. It registers the service providers of Dex and Grafana of Kyma 1, which the overlay
// kyma-1 enables, and removes the service providers of an instance (docs/contracts/ias.md).
package ias
