import delivery from "hostler:handler/delivery@1.2.0";

export const deadline = {
  leftMs: () => Number(delivery.deadlineMs()),
  isCancelled: () => delivery.isCancelled(),
};
