//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// The manifests of deploy/k8s as pods, with the actions of operators and failures of machines, under visitors.

// cluster is the fleet as pods. It mirrors their endpoints in the nodes of the deployment, sends visitors to those of
// Service edge, like a balancer, and answers DNS queries for headless Services, like CoreDNS.
type cluster struct {
	*deployment
	machine
	end     context.CancelFunc
	helpers sync.WaitGroup
	failed  error // of a helper; read it after helpers have ended

	podsMu    sync.Mutex
	pods      map[string]*node          // by UID
	endpoints map[string]*endpointSlice // by namespace and name
}

// startPods runs both data centres and global as pods, and waits until all edges can admit.
func startPods(ctx context.Context, o options, out io.Writer) (*deployment, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can run containers")
	}
	if err := newBridge(ctx, o.dir); err != nil {
		return nil, err
	}
	d, err := newDeployment(o, out)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		deployment: d, machine: machine{d.fleet}, pods: map[string]*node{},
		endpoints: map[string]*endpointSlice{},
	}
	d.pods = c
	if err := c.startNode(ctx); err != nil {
		return d, err
	}
	d.j.record("", "the node takes pods")
	for _, image := range []string{"bin/pause.tar", "bin/vestibule-image.tar"} {
		if _, err := output(ctx, "", "ctr", "--address", containerd, "--namespace", "k8s.io", "images", "import",
			image); err != nil {
			return d, err
		}
	}
	if err := d.natsConfigure(ctx, "write", "--out", d.path("nats"), "--data-centers",
		strings.Join(d.dcs, ",")); err != nil {
		return d, err
	}
	if err := c.help(); err != nil {
		return d, err
	}
	if err := errors.Join(c.makeVolumes(ctx), (&rollouts{c}).apply(ctx)); err != nil {
		return d, err
	}
	d.j.record("", "every pod is ready")
	return d, (&rollouts{c}).right(ctx)
}

// help starts the resolver, and follows the endpoints.
func (c *cluster) help() error {
	socket, err := net.ListenPacket("udp", hubAddr+":53")
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	c.end = func() {
		end()
		socket.Close() // nothing is written
	}
	c.helpers.Go(func() { c.resolve(socket) })
	c.helpers.Go(func() {
		c.failed = c.watch(ctx, "endpointslices", func(event string, data []byte) error {
			var s endpointSlice
			if err := json.Unmarshal(data, &s); err != nil {
				return err
			}
			return c.see(ctx, event, &s)
		})
	})
	return nil
}

// stop ends the helpers.
func (c *cluster) stop() error {
	if c.end != nil {
		c.end()
		c.helpers.Wait()
	}
	return c.failed
}

// volumes is the number of volumes per size: more than a run uses.
const volumes = 24

// makeVolumes offers folders as volumes, because there is no provisioner.
func (c *cluster) makeVolumes(ctx context.Context) error {
	var all strings.Builder
	for i := range 2 * volumes {
		name, size := fmt.Sprintf("volume-%d", i), "1Gi"
		if i >= volumes {
			size = "10Gi"
		}
		path := c.path("stores", name)
		if err := errors.Join(os.MkdirAll(path, 0o700), os.Chown(path, 65532, 65532)); err != nil {
			return err
		}
		values := map[string]any{"Name": name, "Size": size, "Path": path}
		if err := templates.ExecuteTemplate(&all, "volume.yaml", values); err != nil {
			return err
		}
	}
	return c.kubectl(ctx, all.String(), "apply", "--filename=-")
}

// endpointSlice is the used part of an EndpointSlice.
type endpointSlice struct {
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Endpoints []struct {
		Addresses  []string
		Hostname   string
		Conditions struct{ Ready bool }
		TargetRef  struct{ Name, UID string }
	}
}

// service returns the name of the slice's Service, and whether it is headless.
func (s *endpointSlice) service() (name string, headless bool) {
	_, headless = s.Metadata.Labels["service.kubernetes.io/headless"]
	return s.Metadata.Labels["kubernetes.io/service-name"], headless
}

// see takes a change of a slice.
func (c *cluster) see(ctx context.Context, event string, s *endpointSlice) error {
	c.podsMu.Lock()
	defer c.podsMu.Unlock()
	if key := s.Metadata.Namespace + "/" + s.Metadata.Name; event == "DELETED" {
		delete(c.endpoints, key)
	} else {
		c.endpoints[key] = s
	}
	here, up := map[string]bool{}, map[string]bool{}
	for _, s := range c.endpoints {
		service, _ := s.service()
		place, ok := strings.CutPrefix(s.Metadata.Namespace, "vestibule-")
		for _, e := range s.Endpoints {
			if !ok || e.TargetRef.UID == "" || len(e.Addresses) == 0 {
				continue
			}
			if c.pods[e.TargetRef.UID] == nil {
				n, err := c.newPod(ctx, place, e.TargetRef.Name, e.Addresses[0])
				if err != nil {
					return err
				}
				n.uid = e.TargetRef.UID
				c.pods[n.uid] = n
			}
			here[e.TargetRef.UID] = true
			up[e.TargetRef.UID] = up[e.TargetRef.UID] || service == "edge" && e.Conditions.Ready
		}
	}
	for uid, n := range c.pods {
		n.gone.Store(!here[uid])
		n.up.Store(up[uid])
	}
	return nil
}

// newPod returns the node of a pod.
func (c *cluster) newPod(ctx context.Context, place, name, addr string) (*node, error) {
	role := name[:strings.LastIndexByte(name, '-')]
	volume, err := c.volumeOf(ctx, place, name)
	if err != nil {
		return nil, err
	}
	n := &node{name: place + "/" + name, role: role, place: place, fleet: c.fleet, data: c.path("stores", volume)}
	n.url.Store("http://" + addr + ":8080")
	n.metrics.Store("http://" + addr + ":9100")
	c.enlist(n)
	return n, nil
}

// volumeOf returns the name of the volume of a pod.
func (c *cluster) volumeOf(ctx context.Context, place, pod string) (string, error) {
	return output(ctx, "", c.kubectlArgv("get", "pvc", "data-"+pod, "--namespace=vestibule-"+place,
		"--output=jsonpath={.spec.volumeName}")...)
}

// resolve answers DNS queries until the socket is closed.
func (c *cluster) resolve(socket net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := socket.ReadFrom(buf)
		if err != nil {
			return // closed by stop
		}
		if answer, err := c.answer(buf[:n]); err == nil { // malformed queries are ignored
			_, _ = socket.WriteTo(answer, from) // the resolver of a pod asks again
		}
	}
}

func (c *cluster) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("expected one question"))
	}
	q := m.Questions[0]
	found := c.lookup(strings.ToLower(q.Name.String()))
	a := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired},
		Questions: m.Questions,
	}
	if len(found) == 0 {
		a.RCode = dnsmessage.RCodeNameError
	}
	if q.Type == dnsmessage.TypeA {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
		for _, ip := range found {
			a.Answers = append(a.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: [4]byte(ip.To4())}})
		}
	}
	return a.Pack()
}

// lookup returns the addresses of a headless Service or of one of its pods.
func (c *cluster) lookup(name string) (found []net.IP) {
	c.podsMu.Lock()
	defer c.podsMu.Unlock()
	for _, s := range c.endpoints {
		service, headless := s.service()
		full := service + "." + s.Metadata.Namespace + ".svc." + domain + "."
		for _, e := range s.Endpoints {
			if headless && e.Conditions.Ready && len(e.Addresses) > 0 && (name == full || name == e.Hostname+"."+full) {
				found = append(found, net.ParseIP(e.Addresses[0]))
			}
		}
	}
	return found
}
