// Package chaos runs KEB as it is deployed, every service a process of its own with the settings of docker-compose.yml and its own user
// on the bus, breaks it under load in every way that it is said to survive, and prints what came of it: `make chaos`.
//
// Real are the commands, NATS with the generated users, and Postgres. The external systems are the landscape; a proxy (toxiproxy) stands
// on every way between a process and what it calls.
package chaos
