// Package tlsfiles makes TLS configurations from files: the certificate and key of a server, the authorities whose clients it lets in,
// the authorities that a client trusts, and the certificate that it shows. Files are read again when they change, so a certificate is
// renewed without a restart; what is wrong with one is said with the variable that names it. TLS 1.2 is the oldest version spoken.
package tlsfiles
