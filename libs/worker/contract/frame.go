package contract

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// Limits of forwarded frames; those of the server are lower.
const (
	maxLine    = 64 << 10
	maxPayload = 8 << 20
)

var errFrame = errors.New("not the protocol of NATS")

// frame is one message of the protocol between a NATS client and its server.
type frame struct {
	// op is PUB, HPUB, MSG, HMSG or another word; only these four set the following fields.
	op, subject, reply string
	header             nats.Header
	data               []byte
	// raw is the whole frame as sent.
	raw []byte
}

// text returns the first line without its end.
func (f *frame) text() string {
	line, _, _ := bytes.Cut(f.raw, []byte("\r\n"))
	return string(line)
}

// readFrame reads the next frame.
func readFrame(r *bufio.Reader) (*frame, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	f := &frame{raw: line}
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return f, nil
	}
	f.op = strings.ToUpper(words[0])
	sizes := 1 // of headers and data together
	args := words[1:]
	switch f.op {
	case "HPUB", "HMSG":
		sizes = 2
	case "PUB", "MSG":
	default:
		return f, nil
	}
	if f.op == "MSG" || f.op == "HMSG" {
		if len(args) < 2 {
			return nil, fmt.Errorf("%w: %.100q", errFrame, line)
		}
		args = append([]string{args[0]}, args[2:]...) // without the id of the subscription
	}
	switch len(args) - sizes {
	case 1:
		f.subject = args[0]
	case 2:
		f.subject, f.reply = args[0], args[1]
	default:
		return nil, fmt.Errorf("%w: %.100q", errFrame, line)
	}
	total, err := strconv.Atoi(args[len(args)-1])
	if err != nil || total < 0 || total > maxPayload {
		return nil, fmt.Errorf("%w: %.100q", errFrame, line)
	}
	headers := 0
	if sizes == 2 {
		if headers, err = strconv.Atoi(args[len(args)-2]); err != nil || headers < 0 || headers > total {
			return nil, fmt.Errorf("%w: %.100q", errFrame, line)
		}
	}
	at := len(f.raw)
	f.raw = append(f.raw, make([]byte, total+2)...)
	if _, err := io.ReadFull(r, f.raw[at:]); err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(f.raw, []byte("\r\n")) {
		return nil, fmt.Errorf("%w: a message is longer than it says", errFrame)
	}
	if headers > 0 {
		// The server rejects invalid frames.
		f.header, _ = nats.DecodeHeadersMsg(f.raw[at : at+headers])
	}
	f.data = f.raw[at+headers : at+total]
	return f, nil
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxLine {
			return nil, err
		}
	}
}
