// Package service is what every main of the project needs: configuration from the environment, logs, a group of parts that
// live and end together, HTTP serving, health, metrics, signals and the lock on a data folder.
package service
