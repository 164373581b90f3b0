"""A service of one request a time: each costs CPU, and is answered on its connection."""
import socket, sys, threading, time

def serve(connection):
    with connection:
        while connection.recv(64):
            until = time.thread_time() + 0.0003
            while time.thread_time() < until:
                pass
            connection.sendall(b"answer\n")

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
