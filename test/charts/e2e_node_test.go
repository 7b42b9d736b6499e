package charts_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	nodeName = "docker"
	// look is how often the node looks at the API server: soon enough for probes that ask every two seconds.
	look = 250 * time.Millisecond
)

// node runs the pods bound to it as Docker containers.
type node struct {
	t       *testing.T
	client  client.Client
	network string
	gateway string
	dir     string
	wg      sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*container
	// killed are containers that had not ended when their grace period was over, failed those that ended with an error when they were told
	// to, and restarted those that ended by themselves.
	killed, failed, restarted []string
	// endpoints are the addresses of ready pods by Service.
	endpoints map[string][]string
	proxies   map[string]net.Listener
}

// container is a pod on its way through its life.
type container struct {
	name string
	// remove is closed when the pod is to be ended.
	remove chan struct{}
	once   sync.Once
}

func (c *container) end() { c.once.Do(func() { close(c.remove) }) }

// awaitRemoval waits until the pod is to be ended, or the test is over.
func (c *container) awaitRemoval(ctx context.Context) {
	select {
	case <-c.remove:
	case <-ctx.Done():
	}
}

// startNode adds a node to the cluster and runs its pods until the test ends.
func startNode(t *testing.T, c client.Client) *node {
	t.Helper()
	n := &node{
		t: t, client: c, network: "keb-e2e-" + strconv.Itoa(os.Getpid()), dir: t.TempDir(),
		pods: map[types.UID]*container{}, endpoints: map[string][]string{}, proxies: map[string]net.Listener{},
	}
	// Containers write into their folders as users of their own.
	require.NoError(t, os.Chmod(n.dir, 0o777))
	if _, err := run(t.Context(), "docker", "network", "create", n.network); err != nil {
		t.Fatalf("the test needs a Docker engine: %v", err)
	}
	var err error
	if n.gateway, err = run(t.Context(), "docker", "network", "inspect", n.network, "--format", "{{(index .IPAM.Config 0).Gateway}}"); err != nil {
		t.Fatal(err)
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName}}}
	require.NoError(t, c.Create(t.Context(), object))
	object.Spec.Taints = nil
	require.NoError(t, c.Update(t.Context(), object))
	room := corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("200")}
	object.Status.Allocatable, object.Status.Capacity = room, room
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	require.NoError(t, c.Status().Update(t.Context(), object))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	n.wg.Go(func() { n.watch(ctx) })
	t.Cleanup(func() {
		if t.Failed() {
			n.logs()
		}
		n.mu.Lock()
		for _, p := range n.proxies {
			_ = p.Close()
		}
		n.mu.Unlock()
		stop()
		clean := context.WithoutCancel(t.Context())
		n.removeContainers(clean) // n.wg waits for their end
		n.wg.Wait()
		n.removeContainers(clean)
		_, _ = run(clean, "docker", "run", "--rm", "--volume", n.dir+":/all", "--user", "0", "--entrypoint", "sh", "postgres:17-alpine", "-c", "rm -rf /all/*")
		if _, err := run(clean, "docker", "network", "rm", n.network); err != nil {
			t.Error(err)
		}
	})
	return n
}

// removeContainers removes the containers of all pods.
func (n *node) removeContainers(ctx context.Context) {
	if left, _ := run(ctx, "docker", "ps", "-aq", "--filter", "network="+n.network); left != "" {
		_, _ = run(ctx, "docker", append([]string{"rm", "-f"}, strings.Fields(left)...)...)
	}
}

// watch looks again and again at pods, claims and Services.
func (n *node) watch(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if err := errors.Join(n.takePods(ctx), n.bindClaims(ctx), n.route(ctx)); err != nil && ctx.Err() == nil {
			n.t.Logf("node: %v, trying again", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// takePods starts what is bound to the node and ends what is deleted.
func (n *node) takePods(ctx context.Context) error {
	var list corev1.PodList
	if err := n.client.List(ctx, &list); err != nil {
		return err
	}
	n.forget(list.Items)
	for _, p := range list.Items {
		if p.Spec.NodeName != nodeName {
			continue
		}
		n.mu.Lock()
		c := n.pods[p.UID]
		if c == nil && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending {
			c = &container{name: "keb-e2e-" + string(p.UID), remove: make(chan struct{})}
			n.pods[p.UID] = c
			n.wg.Go(func() {
				if err := n.live(ctx, p.DeepCopy(), c); err != nil && ctx.Err() == nil {
					n.t.Logf("node: pod %s: %v", p.Name, err)
				}
			})
		}
		n.mu.Unlock()
		if p.DeletionTimestamp == nil {
			continue
		}
		if c == nil {
			if err := client.IgnoreNotFound(n.client.Delete(ctx, &p, client.GracePeriodSeconds(0))); err != nil {
				return err
			}
			continue
		}
		c.end()
	}
	return nil
}

// forget ends what is left of pods that are gone: one that has succeeded or failed is deleted at once.
func (n *node) forget(there []corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, c := range n.pods {
		if !slices.ContainsFunc(there, func(p corev1.Pod) bool { return p.UID == uid }) {
			c.end()
			delete(n.pods, uid)
		}
	}
}

// live is the life of a pod, from its first container to its removal.
func (n *node) live(ctx context.Context, p *corev1.Pod, c *container) error {
	if err := n.create(ctx, p, c); err != nil {
		n.status(ctx, p, corev1.PodPending, "", func(s *corev1.ContainerStatus) {
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: err.Error()}
		})
		c.awaitRemoval(ctx)
		return errors.Join(err, n.vanish(ctx, p, c))
	}
	for restarts := int32(0); ; restarts++ {
		if _, err := run(ctx, "docker", "start", c.name); err != nil {
			return err
		}
		ip, err := run(ctx, "docker", "inspect", c.name, "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
		if err != nil {
			return err
		}
		ended := make(chan int, 1)
		n.wg.Go(func() {
			out, _ := run(context.WithoutCancel(ctx), "docker", "wait", c.name)
			code, err := strconv.Atoi(out)
			if err != nil {
				code = -1
			}
			ended <- code
		})
		code, gone := n.attend(ctx, p, c, ip, restarts, ended)
		if gone || ctx.Err() != nil {
			return n.vanish(ctx, p, c)
		}
		if p.Spec.RestartPolicy == corev1.RestartPolicyNever {
			phase := corev1.PodSucceeded
			if code != 0 {
				phase = corev1.PodFailed
				out, _ := run(ctx, "docker", "logs", c.name)
				n.t.Logf("node: pod %s ended with %d: %s", p.Name, code, tail(out))
			}
			n.status(ctx, p, phase, ip, func(s *corev1.ContainerStatus) {
				s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: metav1.Now()}
			})
			c.awaitRemoval(ctx)
			return n.vanish(ctx, p, c)
		}
		out, _ := run(ctx, "docker", "logs", "--tail", "5", c.name)
		n.note(&n.restarted, fmt.Sprintf("%s with %d: %s", p.Name, code, tail(out)))
	}
}

// ends returns and empties those lists.
func (n *node) ends() (killed, failed, restarted []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	killed, failed, restarted = n.killed, n.failed, n.restarted
	n.killed, n.failed, n.restarted = nil, nil, nil
	return killed, failed, restarted
}

func (n *node) note(list *[]string, what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*list = append(*list, what)
}

// create makes the container, its files and its volumes.
func (n *node) create(ctx context.Context, p *corev1.Pod, c *container) error {
	if len(p.Spec.Containers) != 1 || len(p.Spec.InitContainers) > 0 {
		return errors.New("this node runs pods of one container")
	}
	spec := p.Spec.Containers[0]
	args := []string{"create", "--name", c.name, "--network", n.network, "--hostname", p.Name}
	security := p.Spec.SecurityContext
	if security == nil || security.RunAsUser == nil || *security.RunAsUser == 0 {
		return errors.New("this node runs no container as root")
	}
	args = append(args, "--user", fmt.Sprintf("%d:%d", *security.RunAsUser, *security.RunAsGroup))
	if s := spec.SecurityContext; s != nil {
		if ptr.Deref(s.ReadOnlyRootFilesystem, false) {
			args = append(args, "--read-only")
		}
		if !ptr.Deref(s.AllowPrivilegeEscalation, true) {
			args = append(args, "--security-opt", "no-new-privileges")
		}
		for _, capability := range s.Capabilities.Drop {
			args = append(args, "--cap-drop", string(capability))
		}
	}
	if limit := spec.Resources.Limits.Memory(); !limit.IsZero() {
		args = append(args, "--memory", strconv.FormatInt(limit.Value(), 10))
	}
	env, err := n.environment(ctx, p, spec, filepath.Join(n.dir, string(p.UID)+".env"))
	if err != nil {
		return err
	}
	args = append(args, "--env-file", env)
	mounts, err := n.mounts(ctx, p, spec)
	if err != nil {
		return err
	}
	args = append(args, mounts...)
	hosts, err := n.hosts(ctx)
	if err != nil {
		return err
	}
	args = append(args, hosts...)
	if len(spec.Command) > 0 {
		return errors.New("this node knows args only, no command")
	}
	_, err = run(ctx, "docker", append(append(args, spec.Image), spec.Args...)...)
	return err
}

// hosts lead from the names of Services to the node, which hands connections on to ready pods.
func (n *node) hosts(ctx context.Context) ([]string, error) {
	var services corev1.ServiceList
	if err := n.client.List(ctx, &services, client.InNamespace(e2eNamespace)); err != nil {
		return nil, err
	}
	var args []string
	for _, s := range services.Items {
		args = append(args, "--add-host", s.Name+":"+n.gateway)
	}
	return args, nil
}

func (n *node) environment(ctx context.Context, p *corev1.Pod, spec corev1.Container, file string) (string, error) {
	var b strings.Builder
	for _, e := range spec.Env {
		value := e.Value
		if e.ValueFrom != nil {
			ref := e.ValueFrom.SecretKeyRef
			if ref == nil {
				return "", fmt.Errorf("%s: this node takes values from Secrets only", e.Name)
			}
			var secret corev1.Secret
			if err := n.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: ref.Name}, &secret); err != nil {
				return "", fmt.Errorf("%s: %w", e.Name, err)
			}
			content, ok := secret.Data[ref.Key]
			if !ok {
				return "", fmt.Errorf("%s: the Secret %s has no key %s", e.Name, ref.Name, ref.Key)
			}
			value = string(content)
		}
		if strings.Contains(value, "\n") || strings.Contains(value, "$(") {
			return "", fmt.Errorf("%s: this node takes one line, without references", e.Name)
		}
		b.WriteString(e.Name + "=" + value + "\n")
	}
	return file, os.WriteFile(file, []byte(b.String()), 0o600)
}

func (n *node) mounts(ctx context.Context, p *corev1.Pod, spec corev1.Container) ([]string, error) {
	sources := map[string]string{}
	for _, v := range p.Spec.Volumes {
		dir := filepath.Join(n.dir, string(p.UID), v.Name)
		content := map[string][]byte{}
		var keys []corev1.KeyToPath
		switch {
		case v.EmptyDir != nil:
		case v.PersistentVolumeClaim != nil:
			dir = filepath.Join(n.dir, "claim-"+v.PersistentVolumeClaim.ClaimName)
		case v.Secret != nil:
			var s corev1.Secret
			if err := n.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: v.Secret.SecretName}, &s); err != nil {
				return nil, err
			}
			content, keys = s.Data, v.Secret.Items
		case v.ConfigMap != nil:
			var m corev1.ConfigMap
			if err := n.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: v.ConfigMap.Name}, &m); err != nil {
				return nil, err
			}
			for k, text := range m.Data {
				content[k] = []byte(text)
			}
			keys = v.ConfigMap.Items
		default:
			return nil, fmt.Errorf("volume %s: this node does not know its kind", v.Name)
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			return nil, err
		}
		for name, text := range content {
			if i := slices.IndexFunc(keys, func(k corev1.KeyToPath) bool { return k.Key == name }); i >= 0 {
				name = keys[i].Path
			} else if len(keys) > 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				return nil, err
			}
		}
		sources[v.Name] = dir
	}
	var args []string
	for _, m := range spec.VolumeMounts {
		mount := sources[m.Name] + ":" + m.MountPath
		if m.ReadOnly {
			mount += ":ro"
		}
		args = append(args, "--volume", mount)
	}
	return args, nil
}

// attend probes a running container until it ends, with its exit code, or is to vanish and has been ended.
func (n *node) attend(ctx context.Context, p *corev1.Pod, c *container, ip string, restarts int32, ended <-chan int) (code int, gone bool) {
	spec := p.Spec.Containers[0]
	begun := metav1.Now()
	tell := func(isReady bool) {
		n.status(ctx, p, corev1.PodRunning, ip, func(s *corev1.ContainerStatus) {
			s.State.Running, s.RestartCount, s.Ready = &corev1.ContainerStateRunning{StartedAt: begun}, restarts, isReady
		})
	}
	started, isReady := spec.StartupProbe == nil, false
	tell(started && spec.ReadinessProbe == nil)
	failures := map[string]int32{}
	next := map[string]time.Time{}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case code := <-ended:
			return code, false
		case <-ctx.Done():
			return 0, true
		case <-c.remove:
			n.end(ctx, p, c, ended)
			return 0, true
		case <-tick.C:
		}
		due := func(kind string, probe *corev1.Probe) (ok, asked bool) {
			if probe == nil || time.Now().Before(next[kind]) {
				return false, false
			}
			next[kind] = time.Now().Add(time.Duration(probe.PeriodSeconds) * time.Second)
			if err := n.probe(ctx, c, ip, spec, probe); err != nil {
				failures[kind]++
				return false, true
			}
			failures[kind] = 0
			return true, true
		}
		if !started {
			if ok, _ := due("startup", spec.StartupProbe); !ok {
				if failures["startup"] >= spec.StartupProbe.FailureThreshold {
					_, _ = run(ctx, "docker", "kill", c.name)
				}
				continue
			}
			started = true
		}
		if ok, asked := due("liveness", spec.LivenessProbe); asked && !ok && failures["liveness"] >= spec.LivenessProbe.FailureThreshold {
			n.t.Logf("node: pod %s is not alive, restarting it", p.Name)
			_, _ = run(ctx, "docker", "kill", c.name)
			continue
		}
		if ok, asked := due("readiness", spec.ReadinessProbe); asked && ok != isReady && (ok || failures["readiness"] >= spec.ReadinessProbe.FailureThreshold) {
			isReady = ok
			tell(isReady)
		}
	}
}

func (n *node) probe(ctx context.Context, c *container, ip string, spec corev1.Container, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	port := func(name string) string {
		for _, p := range spec.Ports {
			if p.Name == name {
				return net.JoinHostPort(ip, strconv.Itoa(int(p.ContainerPort)))
			}
		}
		return net.JoinHostPort(ip, name)
	}
	switch {
	case probe.HTTPGet != nil:
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+port(probe.HTTPGet.Port.String())+probe.HTTPGet.Path, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode >= http.StatusBadRequest {
			return errors.New(answer.Status)
		}
		return nil
	case probe.TCPSocket != nil:
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", port(probe.TCPSocket.Port.String()))
		if err != nil {
			return err
		}
		return conn.Close()
	case probe.Exec != nil:
		_, err := run(ctx, "docker", append([]string{"exec", c.name}, probe.Exec.Command...)...)
		return err
	}
	return errors.New("this node does not know the probe")
}

// end ends a container as a kubelet does: the pause of preStop, SIGTERM, and SIGKILL when the grace period is over.
func (n *node) end(ctx context.Context, p *corev1.Pod, c *container, ended <-chan int) {
	grace := time.NewTimer(time.Duration(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, 30)) * time.Second)
	defer grace.Stop()
	if l := p.Spec.Containers[0].Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		pause := time.NewTimer(time.Duration(l.PreStop.Sleep.Seconds) * time.Second)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ended:
			return
		}
	}
	// The signal is that of the image: Postgres takes SIGTERM for a wish to wait until all clients have gone.
	signal, _ := run(ctx, "docker", "inspect", c.name, "--format", "{{.Config.StopSignal}}")
	_, _ = run(ctx, "docker", "kill", "--signal", cmp.Or(signal, "SIGTERM"), c.name)
	select {
	case code := <-ended:
		// The bundled servers end with codes of their own.
		if code != 0 && !strings.Contains(p.Name, "nats") && !strings.Contains(p.Name, "postgres") {
			out, _ := run(ctx, "docker", "logs", "--tail", "5", c.name)
			n.note(&n.failed, fmt.Sprintf("%s ended with %d: %s", p.Name, code, tail(out)))
		}
	case <-grace.C:
		n.note(&n.killed, p.Name+" had not ended in time")
		_, _ = run(ctx, "docker", "kill", c.name)
		<-ended
	}
}

// vanish removes the container and the pod.
func (n *node) vanish(ctx context.Context, p *corev1.Pod, c *container) error {
	if ctx.Err() != nil {
		return nil // the test is over, and removes all containers
	}
	_, err := run(ctx, "docker", "rm", "-f", c.name)
	return errors.Join(err, client.IgnoreNotFound(n.client.Delete(ctx, p, client.GracePeriodSeconds(0))))
}

// status writes the status of a pod; the container's is filled in by change.
func (n *node) status(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase, ip string, change func(*corev1.ContainerStatus)) {
	spec := p.Spec.Containers[0]
	own := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, Started: new(true)}
	change(&own)
	condition := func(kind corev1.PodConditionType, is bool) corev1.PodCondition {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}
		if is {
			c.Status = corev1.ConditionTrue
		}
		return c
	}
	for range 10 {
		var now corev1.Pod
		if err := n.client.Get(ctx, client.ObjectKeyFromObject(p), &now); err != nil || now.UID != p.UID {
			return // it is gone
		}
		now.Status.Phase, now.Status.HostIP, now.Status.PodIP = phase, n.gateway, ip
		now.Status.PodIPs = nil
		if ip != "" {
			now.Status.PodIPs = []corev1.PodIP{{IP: ip}}
		}
		if now.Status.StartTime == nil {
			now.Status.StartTime = new(metav1.Now())
		}
		scheduled := slices.DeleteFunc(slices.Clone(now.Status.Conditions), func(c corev1.PodCondition) bool { return c.Type != corev1.PodScheduled })
		now.Status.Conditions = append(scheduled, condition(corev1.PodInitialized, true),
			condition(corev1.ContainersReady, own.Ready), condition(corev1.PodReady, own.Ready))
		now.Status.ContainerStatuses = []corev1.ContainerStatus{own}
		if err := n.client.Status().Update(ctx, &now); err == nil {
			return
		}
	}
}

// bindClaims gives every claim a volume, which is a folder of the node that outlives the pods.
func (n *node) bindClaims(ctx context.Context) error {
	var claims corev1.PersistentVolumeClaimList
	if err := n.client.List(ctx, &claims); err != nil {
		return err
	}
	for _, claim := range claims.Items {
		if claim.Status.Phase == corev1.ClaimBound || claim.DeletionTimestamp != nil {
			continue
		}
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume-" + claim.Name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{"storage": resource.MustParse("100Gi")}, AccessModes: claim.Spec.AccessModes,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(n.dir, claim.Name)}},
		}}
		if err := client.IgnoreAlreadyExists(n.client.Create(ctx, volume)); err != nil {
			return err
		}
		claim.Spec.VolumeName = volume.Name
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
		if err := n.client.Update(ctx, &claim); err != nil {
			return err
		}
		claim.Status.Phase, claim.Status.AccessModes = corev1.ClaimBound, claim.Spec.AccessModes
		if err := n.client.Status().Update(ctx, &claim); err != nil {
			return err
		}
	}
	return nil
}

// route keeps the addresses of ready pods, and listens for each port of a Service at the address of the node.
func (n *node) route(ctx context.Context) error {
	var slicesOf discoveryv1.EndpointSliceList
	if err := n.client.List(ctx, &slicesOf, client.InNamespace(e2eNamespace)); err != nil {
		return err
	}
	found := map[string][]string{}
	for _, s := range slicesOf.Items {
		for _, port := range s.Ports {
			at := s.Labels[discoveryv1.LabelServiceName] + ":" + strconv.Itoa(int(*port.Port))
			for _, e := range s.Endpoints {
				if ptr.Deref(e.Conditions.Ready, false) {
					found[at] = append(found[at], net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endpoints = found
	for at, ln := range n.proxies {
		// Where no pod is ready, connections are refused.
		if len(found[at]) == 0 {
			_ = ln.Close()
			delete(n.proxies, at)
		}
	}
	for at := range found {
		if n.proxies[at] != nil {
			continue
		}
		_, port, _ := strings.Cut(at, ":")
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(n.gateway, port))
		if err != nil {
			return err
		}
		n.proxies[at] = ln
		n.wg.Go(func() { n.forward(ctx, ln, at) })
	}
	return nil
}

// forward hands each connection on to one of the ready pods in turn.
func (n *node) forward(ctx context.Context, ln net.Listener, at string) {
	for turn := 0; ; turn++ {
		in, err := ln.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		to := slices.Clone(n.endpoints[at])
		n.mu.Unlock()
		if len(to) == 0 { // just now
			_ = in.Close()
			return
		}
		n.wg.Go(func() {
			defer in.Close()
			out, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", to[turn%len(to)])
			if err != nil {
				return
			}
			defer out.Close()
			release := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
			defer release()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(out, in)
				_ = out.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(in, out)
			_ = in.(*net.TCPConn).CloseWrite()
			_ = in.SetReadDeadline(time.Now().Add(10 * time.Second))
			<-done
		})
	}
}

// logs shows the ends of the logs of all containers that there are.
func (n *node) logs() {
	names, _ := run(context.WithoutCancel(n.t.Context()), "docker", "ps", "-a", "--filter", "network="+n.network, "--format", "{{.Names}} {{.Image}} {{.Status}}")
	for line := range strings.Lines(names) {
		name, about, _ := strings.Cut(strings.TrimSpace(line), " ")
		out, _ := run(context.WithoutCancel(n.t.Context()), "docker", "logs", "--tail", "8", name)
		n.t.Logf("--- %s\n%s", about, tail(out))
	}
}
