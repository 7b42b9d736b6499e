package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is the maximum size of an answer in bytes. client-go reads an answer of any size into memory, and a runtime belongs to a customer.
const maxAnswer = 32 << 20

// tooLongError is the error of an answer that is longer than maxAnswer.
type tooLongError struct{}

func (tooLongError) Error() string { return fmt.Sprintf("answer is longer than %d bytes", maxAnswer) }

// limited is a transport whose answers have at most maxAnswer bytes.
type limited struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		resp.Body = &limitedBody{resp.Body, maxAnswer}
	}
	return resp, err
}

// limitedBody returns a tooLongError after more than left bytes.
type limitedBody struct {
	io.ReadCloser

	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, tooLongError{}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = readError{err}
	}
	return n, err
}

// readError marks an error of the network within an answer, for wrap.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }
