// Package dashboards holds the tests of what KEB is watched with: dashboards, recording rules, alerts and their runbooks, as they are
// in the chart deploy/helm/keb.
package dashboards
