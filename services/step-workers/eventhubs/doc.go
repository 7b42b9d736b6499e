// Package eventhubs is the worker of Azure Event Hubs, the Kafka of Kyma 1: each instance has a namespace in a resource group of its
// own (facts/keb.md 4.6, 5.13). Its steps are switched on by the overlay kyma-1.
package eventhubs
