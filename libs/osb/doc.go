// Package osb serves the Open Service Broker API 2.17 on net/http.
//
// A broker implements Broker, one method per route. NewHandler turns it into an
// http.Handler that does what every broker needs and none should write again:
// authentication, the version check, content type and size limits, decoding,
// the identity headers, the checks against the catalog, error bodies, the
// conditional catalog, and a guard against panics. The same routes are served
// under "/", "/oauth" and "/oauth/{region}".
//
// A request is answered by the first check that it fails, in this order: 401
// credentials, 404/405 route, 412 version, 400 originating identity, 400/413
// content type and body, 400 required ids, 400 ids against the catalog, 422
// maintenance_info; then the broker decides about existence (404/410),
// AsyncRequired, ConcurrencyError and conflicts, in that order
// (docs/contracts/osb.md#decisions).
//
// The package imports the standard library only.
package osb
