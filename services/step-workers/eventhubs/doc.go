// Package eventhubs is the worker of Azure Event Hubs, the Kafka of Kyma 1: each instance has a namespace in a resource group of its
// own (docs/contracts/event-hubs.md). Its steps are switched on by the overlay kyma-1.
package eventhubs
