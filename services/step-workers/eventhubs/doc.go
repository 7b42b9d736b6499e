// Package eventhubs is the worker of Azure Event Hubs, the Kafka of Kyma 1. Each instance has a namespace in its own resource group
// (docs/contracts/event-hubs.md). The overlay kyma-1 enables its steps.
package eventhubs
