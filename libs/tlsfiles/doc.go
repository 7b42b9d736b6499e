// Package tlsfiles creates TLS configurations from files: the certificate and key of a server, the authorities of its clients, the
// authorities that a client trusts, and the client's certificate. Changed files are read again, so a certificate is renewed without a
// restart. Errors contain the name of the variable. The oldest supported version is TLS 1.2.
package tlsfiles
