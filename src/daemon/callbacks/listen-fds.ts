const FIRST_FD = 3;

/**
 * The listening socket that systemd opened for this process and keeps open over restarts (sd_listen_fds(3)), so
 * that callbacks wait instead of being refused; undefined without one. Further sockets are left alone.
 */
export function inheritedSocket(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): number | undefined {
  // The variables pass to children, for whom they are not meant.
  if (env.LISTEN_PID !== String(pid)) return undefined;
  const count = Number(env.LISTEN_FDS);
  return Number.isInteger(count) && count > 0 ? FIRST_FD : undefined;
}
