package contract

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

func TestFramesArePassedOnAsTheyAre(t *testing.T) {
	t.Parallel()
	const stream = "INFO {\"a\":1}\r\nCONNECT {}\r\nPING\r\n" +
		"PUB a.b 5\r\nhello\r\nPUB a.b r.1 0\r\n\r\n" +
		"HPUB a.b r 22 27\r\nNATS/1.0\r\nce-id: 1\r\n\r\nhello\r\n" +
		"MSG a.b 1 r 3\r\nx\r\n\r\nHMSG a 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n-ERR 'Permissions Violation for Publish to \"x\"'\r\n"
	r := bufio.NewReaderSize(strings.NewReader(stream), 16)
	var out bytes.Buffer
	var seen []string
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		out.Write(f.raw)
		seen = append(seen, f.op+" "+f.subject+" "+f.reply+" "+string(f.data)+" "+header(f.header, "Ce-Id")+f.header.Get("Status"))
	}
	if out.String() != stream {
		t.Errorf("passed on:\n%q\nwant:\n%q", out.String(), stream)
	}
	want := []string{
		"INFO    ", "CONNECT    ", "PING    ", "PUB a.b  hello ", "PUB a.b r.1  ", "HPUB a.b r hello 1", "MSG a.b r x\r\n ", "HMSG a   503", "-ERR    ",
	}
	if got := strings.Join(seen, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("saw:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func TestWhatIsNoProtocolEndsTheConnection(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"PUB a\r\n", "PUB a b c 1\r\nx\r\n", "PUB a -1\r\n", "PUB a 99999999999\r\n", "HPUB a 5 3\r\nabc\r\n", "MSG a\r\n", "PUB a 1\r\nxyz\r\n",
		strings.Repeat("x", 1<<20),
	} {
		if f, err := readFrame(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%.20q was read as %+v", text, f)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("HPUB a.b r 22 27\r\nNATS/1.0\r\nce-id: 1\r\n\r\nhello\r\n"))
	f.Add([]byte("MSG a.b 1 r 3\r\nx\r\n\r\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bufio.NewReader(bytes.NewReader(stream))
		var out []byte
		for {
			frame, err := readFrame(r)
			if err != nil {
				break
			}
			out = append(out, frame.raw...)
		}
		if !bytes.HasPrefix(stream, out) {
			t.Errorf("passed on %q of %q", out, stream)
		}
	})
}
