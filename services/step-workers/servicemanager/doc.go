// Package servicemanager is the worker for the credentials of the Service Manager proxy of Kyma 1
// (docs/contracts/btp.md#service-manager-of-kyma-1). It calls no external system. The overlay kyma-1 enables its step.
package servicemanager
