package pglocal

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// repository starts a Maven repository that returns one archive for every path, and counts the downloads.
func repository(t *testing.T, archive []byte) (url string, downloads *atomic.Int64) {
	t.Helper()
	downloads = &atomic.Int64{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if archive == nil || strings.HasSuffix(r.URL.Path, ".sha256") {
			http.NotFound(w, r)
			return
		}
		downloads.Add(1)
		_, _ = w.Write(archive)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, downloads
}

// jar packs programs that only fail, in the format of the real PostgreSQL archive.
func jar(t *testing.T, programs ...string) []byte {
	t.Helper()
	var files bytes.Buffer
	tw := tar.NewWriter(&files)
	const script = "#!/bin/sh\necho one line >&2\necho another >&2\nexit 1\n"
	for _, p := range programs {
		require.NoError(t, tw.WriteHeader(&tar.Header{Name: "bin/" + p, Mode: 0o755, Size: int64(len(script)), Typeflag: tar.TypeReg}))
		_, err := tw.Write([]byte(script))
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	var out bytes.Buffer
	zw := zip.NewWriter(&out)
	w, err := zw.Create("postgres.txz")
	require.NoError(t, err)
	_, err = w.Write(xz(files.Bytes()))
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	return out.Bytes()
}

// xz wraps data as an .xz file with one block of stored chunks (https://tukaani.org/xz/xz-file-format.txt).
func xz(data []byte) []byte {
	le32 := func(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
	crc := crc32.ChecksumIEEE
	pad := func(b []byte) []byte { return append(b, make([]byte, (4-len(b)%4)%4)...) }

	flags := []byte{0x00, 0x01} // CRC32
	out := append([]byte{0xfd, '7', 'z', 'X', 'Z', 0x00}, flags...)
	out = le32(out, crc(flags))

	header := []byte{2, 0x00, 0x21, 0x01, 0x16, 0, 0, 0} // 12 bytes with its CRC; one LZMA2 filter, 8 MiB
	block := le32(header, crc(header))
	control := byte(0x01) // stored, resets the dictionary
	const chunk = 1 << 16
	for rest := data; len(rest) > 0; control = 0x02 {
		n := min(len(rest), chunk)
		block = append(block, control)
		block = binary.BigEndian.AppendUint16(block, uint16(n-1))
		block = append(block, rest[:n]...)
		rest = rest[n:]
	}
	block = append(block, 0x00)
	unpadded := len(block) + 4
	block = le32(pad(block), crc(data))
	out = append(out, block...)

	index := []byte{0x00, 0x01}
	index = binary.AppendUvarint(index, uint64(unpadded))
	index = binary.AppendUvarint(index, uint64(len(data)))
	index = pad(index)
	index = le32(index, crc(index))
	out = append(out, index...)

	footer := append(le32(nil, uint32(len(index)/4-1)), flags...)
	out = le32(out, crc(footer))
	out = append(out, footer...)
	return append(out, 'Y', 'Z')
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestBinaries_SecondCall_DownloadsNothing(t *testing.T) {
	t.Parallel()
	url, downloads := repository(t, jar(t, "postgres", "initdb", "pg_ctl"))
	cfg := FetchConfig{Dir: filepath.Join(t.TempDir(), "pg"), Repository: url}
	for range 2 {
		bin, err := FetchBinaries(within(t, time.Minute), cfg)
		require.NoError(t, err)
		for _, program := range []string{"postgres", "initdb"} {
			if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
				t.Error(err)
			}
		}
	}
	if n := downloads.Load(); n != 1 {
		t.Errorf("downloaded %d times, want once", n)
	}
	entries, err := os.ReadDir(cfg.Dir)
	require.NoError(t, err)
	if len(entries) != 1 {
		t.Errorf("the folder holds %v, want the server alone", entries)
	}
}

func TestBinaries_DownloadFails_ReturnsOneLine(t *testing.T) {
	t.Parallel()
	tests := map[string][]byte{
		"nothing there":         nil,
		"not an archive":        []byte("<html>"),
		"an archive without it": jar(t, "psql"),
	}
	for name, archive := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := repository(t, archive)
			_, err := FetchBinaries(within(t, time.Minute), FetchConfig{Dir: t.TempDir(), Repository: url})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range []string{url, "install PostgreSQL", "address of a server"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
		})
	}
}

func TestBinaries_ContextEnds_Returns(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(release) })
	_, err := FetchBinaries(within(t, 50*time.Millisecond), FetchConfig{Dir: t.TempDir(), Repository: srv.URL})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded", err)
	}
}

func TestBinaries_NoFolder_ReturnsError(t *testing.T) {
	t.Parallel()
	if _, err := FetchBinaries(t.Context(), FetchConfig{}); err == nil {
		t.Error("no error")
	}
}
