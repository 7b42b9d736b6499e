package operatorapi

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/kyma-project/keb/services/orchestrator/internal/console"
)

// minCompressed is the length of the shortest answer that is compressed, in bytes.
const minCompressed = 1024

// compressed compresses the answers of next, except streams. An attacker who chooses a part of an answer and sees its length could guess
// another part of it, but the answers of the API contain no secrets; sessions and tokens are only in headers.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !console.AcceptsGzip(r.Header.Get("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		answer := &compressible{ResponseWriter: w}
		defer answer.end()
		next.ServeHTTP(answer, r)
	})
}

var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for an unknown level
	return z
}}

// compressible decides with the first part of an answer whether it is compressed.
type compressible struct {
	http.ResponseWriter
	status int
	begun  bool
	zipper *gzip.Writer
}

// WriteHeader keeps the status until the first part of the answer is known.
func (c *compressible) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

// Write sends a part of the answer.
func (c *compressible) Write(p []byte) (int, error) {
	if !c.begun {
		c.begin(len(p) >= minCompressed && c.Header().Get("Content-Encoding") == "" &&
			strings.HasPrefix(c.Header().Get("Content-Type"), "application/json"))
	}
	if c.zipper != nil {
		return c.zipper.Write(p)
	}
	return c.ResponseWriter.Write(p)
}

func (c *compressible) begin(compress bool) {
	c.begun = true
	if compress {
		c.Header().Set("Content-Encoding", "gzip")
		c.Header().Del("Content-Length")
		if z, ok := zippers.Get().(*gzip.Writer); ok {
			z.Reset(c.ResponseWriter)
			c.zipper = z
		}
	}
	if c.status != 0 {
		c.ResponseWriter.WriteHeader(c.status)
	}
}

// end sends the rest of the answer.
func (c *compressible) end() {
	if !c.begun {
		c.begin(false)
	}
	if c.zipper != nil {
		_ = c.zipper.Close() // the client has disconnected
		c.zipper.Reset(io.Discard)
		zippers.Put(c.zipper)
	}
}

// FlushError sends what has been written.
func (c *compressible) FlushError() error {
	if !c.begun {
		c.begin(false)
	}
	if c.zipper != nil {
		if err := c.zipper.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Unwrap gives http.ResponseController the deadlines of the connection.
func (c *compressible) Unwrap() http.ResponseWriter { return c.ResponseWriter }

var deflaters = sync.Pool{New: func() any {
	d, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // fails only for an unknown level
	return d
}}

// gzipHeader is the header of a gzip file without a name and a time.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// zippedStream compresses each write on its own and flushes it, so that a stream needs no memory between the writes: a compressor has more
// than half a megabyte.
type zippedStream struct {
	w     io.Writer
	begun bool
	sum   uint32
	size  uint32
}

// Write compresses p and sends it.
func (z *zippedStream) Write(p []byte) (int, error) {
	var out bytes.Buffer
	if !z.begun {
		z.begun = true
		out.Write(gzipHeader)
	}
	d, ok := deflaters.Get().(*flate.Writer)
	if !ok {
		return 0, fmt.Errorf("no compressor")
	}
	defer deflaters.Put(d)
	d.Reset(&out)
	if _, err := d.Write(p); err != nil {
		return 0, err
	}
	// Flush ends with an empty block at the boundary of a byte. The next write continues there.
	if err := d.Flush(); err != nil {
		return 0, err
	}
	if _, err := z.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	z.sum, z.size = crc32.Update(z.sum, crc32.IEEETable, p), z.size+uint32(len(p)) // the format keeps the size modulo 2^32
	return len(p), nil
}

// Close sends the end of the file.
func (z *zippedStream) Close() error {
	if !z.begun {
		return nil
	}
	end := []byte{1, 0, 0, 0xff, 0xff} // the last block, which is empty
	end = binary.LittleEndian.AppendUint32(end, z.sum)
	end = binary.LittleEndian.AppendUint32(end, z.size)
	_, err := z.w.Write(end)
	return err
}
