// Results stay in the array: 4 rows of pixels, 4 output channels.
Constant Channels 4;
Network tiny {
  Layer CONV {
    Type: CONV
    Stride { X: 1, Y: 1 }
    Dimensions { K: 16, C: 8, R: 3, S: 3, Y: 10, X: 10 }
    Dataflow {
      TemporalMap(Channels,Channels) K;
      SpatialMap(Sz(R),1) Y;
      TemporalMap(10,8) X;
      TemporalMap(4,4) C;
      TemporalMap(Sz(R),Sz(R)) R;
      TemporalMap(Sz(S),Sz(S)) S;
      Cluster(Channels, P);
      SpatialMap(1,1) K;
    }
  }
}
