/** Tests that a full run may skip, each with its reason; any other skipped test fails `.ci/run`. */
export const MAY_BE_SKIPPED: readonly { file: string; title: RegExp; why: string }[] = [
  {
    file: 'test/slow/package/hub.test.ts',
    title: /trixie.* is refused with the nats-server of Debian 12/,
    why: 'It is about Debian 12, whose own nats-server is too old.',
  },
  {
    file: 'test/slow/package/arm64.test.ts',
    title: /runs at night/,
    why: 'An emulator takes minutes of the processor.',
  },
  {
    file: 'test/api/access.test.ts',
    title: /needs it over the network/,
    why: 'The machine has no address but that of its loopback.',
  },
];
