// Package installation runs KEB as it is deployed: every service is a separate process with the settings of docker-compose.yml and its own
// user on the bus. It puts load on it, and judges what a fault did to the accepted operations and to the external systems.
//
// The commands, NATS with the generated users, and Postgres are real. The external systems are the landscape. A proxy (toxiproxy) is
// between each process and its dependencies.
package installation
