// Package chaos runs KEB as it is deployed: every service is a separate process with the settings of docker-compose.yml and its own user
// on the bus. It injects faults under load, and prints the results: `make chaos`.
//
// The commands, NATS with the generated users, and Postgres are real. The external systems are the landscape. A proxy (toxiproxy) is
// between each process and its dependencies.
package chaos
