package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
)

// thorough skips tests that are too long for make test.
func thorough(t *testing.T) {
	t.Helper()
	testkit.Suite(t, "attack")
}

// someone is a client with its own address.
type someone struct {
	http http.Client
	idle func()
}

func newSomeone(t *testing.T, from string, connections int) *someone {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections}
	t.Cleanup(transport.CloseIdleConnections)
	return &someone{http: http.Client{Transport: transport, Timeout: waitLimit}, idle: transport.CloseIdleConnections}
}

// get returns the status of an answer; 0 without one.
func (s *someone) get(ctx context.Context, url, token, user string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	r.Header.Set("X-Broker-API-Version", "2.17")
	if user != "" {
		r.SetBasicAuth("keb", user)
	} else {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.http.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode
}

// service sends requests to both services, as a platform and an operator would, while a function runs. It returns the response times.
func (w *world) service(t *testing.T, s *someone, during func()) (took []time.Duration) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		during()
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, ask := range []struct{ url, token, user string }{
			{"http://" + w.operator + "/operations/" + w.operation, viewerToken, ""},
			{"http://" + w.osb + "/v2/service_instances/" + w.instance + "/last_operation", "", platformPassword},
		} {
			begin := time.Now()
			if status := s.get(t.Context(), ask.url, ask.token, ask.user); status != http.StatusOK {
				t.Errorf("another client receives %d", status)
			}
			took = append(took, time.Since(begin))
		}
		select {
		case <-done:
			return took
		case <-tick.C:
		}
	}
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[(len(took)*99)/100].Round(100 * time.Microsecond)
}

// footprint returns the number of goroutines and the memory in use.
func footprint() (goroutines int, heap uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}

func TestSlowClients_OtherClients_AreServed(t *testing.T) {
	thorough(t)
	const most = 1000
	limits := service.HTTP{
		HeaderTimeout: 3 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 8 * time.Second, IdleTimeout: 4 * time.Second, MaxConnections: most,
	}
	w := newWorld(t, options{http: limits})
	w.unchanged(t)
	other := newSomeone(t, "127.0.8.1", 2)
	quiet := p99(w.service(t, other, func() { <-time.After(2 * time.Second) }))
	measured("answers to another client, p99: %s undisturbed", quiet)
	other.idle()
	goroutines, heap := footprint()

	for _, attack := range []struct {
		name  string
		count int
		// first is sent immediately, and then more every 100 ms.
		first, more string
		address     string
	}{
		{"idle connections", 2000, "", "", w.operator},
		{"slow headers (slowloris)", 2000, "GET /v2/catalog HTTP/1.1\r\nHost: x\r\nX-Slow: ", "x", w.osb},
		{"slow bodies with credentials", 300, platform(request{
			method: "PUT", target: "/v2/service_instances/attack?accepts_incomplete=true", header: []string{"Content-Length: 1000"},
		}).text(w.osb, false), " ", w.osb},
		{"slow bodies without", 300, "PUT /v2/service_instances/attack HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", " ", w.osb},
		{"slow readers of big answers", 100, strings.Repeat(as(viewerToken, request{method: "GET", target: "/processes"}).text(w.operator, false), 400), "", w.operator},
	} {
		var cut atomic.Int32
		took := w.service(t, other, func() {
			var wait sync.WaitGroup
			for n := range attack.count {
				conn := dial(t, attack.address, fmt.Sprintf("127.0.9.%d", 1+n%2))
				wait.Go(func() {
					defer conn.Close()
					if slowly(conn, attack.first, attack.more) {
						cut.Add(1)
					}
				})
			}
			wait.Wait()
		})
		for range attack.count {
			tried(attack.name, 0)
		}
		if int(cut.Load()) != attack.count {
			t.Errorf("%s: %d of %d were cut off", attack.name, cut.Load(), attack.count)
		}
		worst := p99(took)
		measured("answers to another client, p99: %s during %d %s", worst, attack.count, attack.name)
		if worst > 5*time.Second {
			t.Errorf("%s: other clients wait %s", attack.name, worst)
		}
	}
	other.idle()
	var after int
	testkit.Eventually(t, waitLimit, "the goroutines of the attackers end", func() bool {
		after, _ = footprint()
		return after <= goroutines+20
	})
	after, used := footprint()
	measured("afterwards: %d goroutines (%d before), %d MiB of heap in use (%d before)", after, goroutines, used>>20, heap>>20)
	if used > heap+64<<20 {
		t.Errorf("%d MiB of heap are in use, %d before", used>>20, heap>>20)
	}
}

// slowly sends a text, and then a little at intervals, until the server closes the connection. It reads nothing before.
func slowly(conn net.Conn, first, more string) (cut bool) {
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, first)
		sent <- err
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(waitLimit)
	if more == "" {
		if err := <-sent; err != nil {
			return true
		}
		if first != "" {
			// Pause until the server has given up. Then less than requested arrives.
			<-time.After(15 * time.Second)
		}
		_, err := io.Copy(io.Discard, conn)
		e, ok := errors.AsType[net.Error](err)
		return !ok || !e.Timeout()
	}
	for time.Now().Before(deadline) {
		<-tick.C
		if _, err := io.WriteString(conn, more); err != nil {
			<-sent
			return true
		}
	}
	return false
}

func TestStreams_OneClient_IsLimited(t *testing.T) {
	thorough(t)
	w := newWorld(t, options{})
	w.unchanged(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	open := func(from, token string) *http.Response {
		s := newSomeone(t, from, 0)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.operator+"/stream", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		s.http.Timeout = 0
		response, err := s.http.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	served := 0
	for range 120 {
		response := open("127.0.8.2", viewerToken)
		tried("streams", response.StatusCode)
		if response.StatusCode == http.StatusOK {
			served++
			continue
		}
		var body struct{ Error string }
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || response.StatusCode != http.StatusServiceUnavailable || body.Error == "" {
			t.Errorf("one stream too many: %s", response.Status)
		}
	}
	if served != 100 {
		t.Errorf("%d streams are served", served)
	}
	if response := open("127.0.8.3", operatorToken); response.StatusCode != http.StatusOK {
		t.Errorf("a stream of another client: %s", response.Status)
	}
	stop()
}

// One client sends as fast as it can, within bounds; other clients are served as without it.
func TestFlood_OtherClients_AreServed(t *testing.T) {
	thorough(t)
	w := newWorld(t, options{clients: access.ClientLimits{Rate: 200, Burst: 400}})
	w.unchanged(t)
	other := newSomeone(t, "127.0.8.4", 2)
	quiet := p99(w.service(t, other, func() { <-time.After(3 * time.Second) }))
	for _, flood := range []struct{ name, url, token, user string }{
		{"lists with credentials", "http://" + w.operator + "/operations?page_size=1000", viewerToken, ""},
		{"lists without", "http://" + w.operator + "/operations?page_size=1000", "keb_wrong", ""},
		{"orders with credentials", "http://" + w.osb + "/v2/service_instances/" + w.instance, "", platformPassword},
		{"orders without", "http://" + w.osb + "/v2/service_instances/" + w.instance, "", "wrong"},
	} {
		const most, clients, lasts = 30_000, 32, 5 * time.Second
		attacker := newSomeone(t, "127.0.9.9", clients)
		var sent, refused, failed atomic.Int64
		took := w.service(t, other, func() {
			ctx, stop := context.WithTimeout(t.Context(), lasts)
			defer stop()
			var wait sync.WaitGroup
			for range clients {
				wait.Go(func() {
					for ctx.Err() == nil && sent.Add(1) <= most {
						switch status := attacker.get(ctx, flood.url, flood.token, flood.user); status {
						case http.StatusTooManyRequests:
							refused.Add(1)
						case 0:
							failed.Add(1)
						}
					}
				})
			}
			wait.Wait()
		})
		attacker.idle()
		worst := p99(took)
		measured("flood of %s: %d requests, %d refused with 429; p99 of another client %s, undisturbed %s", flood.name, sent.Load(), refused.Load(), worst, quiet)
		if refused.Load() == 0 {
			t.Errorf("%s: none of %d requests is rejected", flood.name, sent.Load())
		}
		if worst > 5*time.Second {
			t.Errorf("%s: other clients wait %s", flood.name, worst)
		}
	}
}
