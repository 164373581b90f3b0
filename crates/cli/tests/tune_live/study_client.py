"""Clients of a service of KIND whose rate varies threefold within a minute, and which stop for some seconds at times."""
import math, random, socket, sys, threading, time

kind, host, port, clients, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
REQUEST = {"python": b"request\n", "redis": b"GET key\r\n", "nginx": b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n"}[kind]
stopped_until = 0.0

def answer(connection):
    data = connection.recv(65536)
    if kind != "nginx":
        return data
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, body = data.split(b"\r\n\r\n", 1)
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    read = len(body)
    while read < length:
        more = connection.recv(65536)
        if not more:
            return b""
        read += len(more)
    return head

def ask():
    while True:
        try:
            with socket.create_connection((host, port), 5) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(10)
                while True:
                    # From once to three times the least rate.
                    wave = 1 + 0.5 * math.sin(2 * math.pi * time.time() / 60)
                    time.sleep(random.expovariate(rate * wave))
                    time.sleep(max(0.0, stopped_until - time.time()))
                    connection.sendall(REQUEST)
                    if not answer(connection):
                        break
        except OSError:
            time.sleep(0.1)

for _ in range(clients):
    threading.Thread(target=ask, daemon=True).start()
while True:
    time.sleep(random.expovariate(1 / 60))
    stopped_until = time.time() + random.uniform(2, 6)
    time.sleep(6)
