// Package site loses parts of an installation with two sites under load: `make e2e SUITE=site`. TestStandby loses only the Postgres server,
// and promotes its synchronous standby. TestSite loses everything else with it, and begins at the other site with an empty NATS. Both go back
// and forth several times, count what is lost, and measure how long the services need.
package site
