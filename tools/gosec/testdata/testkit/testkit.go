// Package testkit is for tests, and not looked at.
package testkit

import "crypto/tls"

// Config believes everybody.
func Config() *tls.Config { return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} }
