// Package replica contains what orchestrators that run side by side share. A Follower keeps common data current in the memory of each. Rounds work
// on long orders, such as orchestrations and batches: one orchestrator at a time works on an order, and any of them continues it after a kill.
// Presence notices that an orchestrator has ended.
package replica
