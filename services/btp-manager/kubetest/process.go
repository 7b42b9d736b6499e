package kubetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tail is the displayed length of a server's log.
const tail = 4 << 10

// process is a server besides the kube-apiserver. It logs to a file.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed when the process has ended, for any reason.
	ended chan struct{}
}

// launch starts a server with its files in dir.
func launch(dir, binary string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(binary), cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.log = filepath.Join(dir, p.name+".log")
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Ignore the settings in the current user's home.
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG=")
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		defer close(p.ended)
		// The process ends by being killed. If it ends earlier, the code that waits for its work detects that.
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// running reports whether the server has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stop kills the server and waits for its end.
func (p *process) stop() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	<-p.ended
	return nil
}

// lastLines returns the end of the server's log.
func (p *process) lastLines() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(content) > tail {
		content = content[len(content)-tail:]
	}
	return fmt.Sprintf("--- %s (running: %v)\n%s", p.name, p.running(), strings.TrimSpace(string(content)))
}
